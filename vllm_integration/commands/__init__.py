"""The commands of ``hitproof``, one a module; `frame`, `options` and `running` are shared."""
