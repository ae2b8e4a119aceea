"""What would make a training fail, found before the GPU is touched: `preflight.check.preflight`."""
