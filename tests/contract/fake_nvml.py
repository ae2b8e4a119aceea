"""An NVML that has a device and a UUID but, as on a GB10, no answer about memory; NVML_FREE makes it answer."""

import os


class NVMLError(Exception):
    pass


def nvmlInit():  # noqa: N802
    pass


def nvmlShutdown():  # noqa: N802
    pass


def nvmlDeviceGetHandleByIndex(index):  # noqa: N802
    return index


def nvmlDeviceGetUUID(handle):  # noqa: N802
    return f"GPU-{handle}"


def nvmlDeviceGetMemoryInfo(handle):  # noqa: N802
    if "NVML_FREE" not in os.environ:
        raise NVMLError("Not Supported")
    return type("Memory", (), {"free": int(os.environ["NVML_FREE"])})
