"""Importers and exporters, one module a format.

In: files of other programs. Out: the tables and descriptions of the rooms before. ``hf_config`` reads the
``config.json`` of Hugging Face models, ``megatron_arguments`` the arguments of Megatron-LM.
"""
