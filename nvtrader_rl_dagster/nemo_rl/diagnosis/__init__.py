"""From exit code and log of a training to one named failure, the line that shows it and the remedy."""
