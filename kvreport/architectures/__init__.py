"""The config reader: a Hugging Face ``config.json`` becomes a :class:`~kvreport.catalog.model.Model`.

``read_config`` dispatches on the architecture class to one small function per family (see
``families/``), which says layer by layer what is cached and which tensors exist. ``model_yaml``
writes the result as a catalog file.
"""

from kvreport.architectures.reader import ConfigReading, read_config, read_config_report
from kvreport.catalog.dump import dump_model as model_yaml

__all__ = ["ConfigReading", "model_yaml", "read_config", "read_config_report"]
