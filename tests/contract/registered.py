"""Stands in for a run script below our driver: says what it found, as JSON.

Arguments of the script are seen as they were given, and one row of the data goes through NeMo-RL's own loader.
"""

import json
import sys

from nemo_rl.algorithms.utils import get_tokenizer
from nemo_rl.data.utils import setup_response_data
from nemo_rl.distributed.ray_actor_environment_registry import get_actor_python_env
from nemo_rl.environments.utils import ENV_REGISTRY
from nemo_rl.utils.config import load_config
from omegaconf import OmegaConf


def main():
    config = OmegaConf.to_container(load_config(sys.argv[2]), resolve=True)
    train, _ = setup_response_data(get_tokenizer(config["policy"]["tokenizer"]), config["data"], None)
    own = {name: ENV_REGISTRY[name]["actor_class_fqn"] for name in ("nvtrader", "desk")}
    found = {
        "argv": sys.argv,
        "path": sys.path,
        "file": __file__,
        "environments": own,
        "pythons": [get_actor_python_env(path) == sys.executable for path in own.values()],
        "info": train[0]["extra_env_info"],
        "shown": train[0]["message_log"][0]["content"],
    }
    print("FOUND " + json.dumps(found))


if __name__ == "__main__":
    main()
