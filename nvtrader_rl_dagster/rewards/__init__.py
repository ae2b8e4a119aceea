"""Rewards: pure functions that judge one answer. NeMo-RL's Python loads this package too: standard library only."""

from __future__ import annotations

from nvtrader_rl_dagster.rewards.registry import REWARDS, Reward, find_reward

__all__ = ["REWARDS", "Reward", "find_reward"]
