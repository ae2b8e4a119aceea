"""What a run of NeMo-RL says: its log as a stream of bytes, its TensorBoard scalars, its rollout samples."""
