"""`vetted train`: runs a trainer of TRL, or the user's own script, and collects all results in one folder.

The folder is /runs/<time>: the merged config, checkpoints, metrics.jsonl, TensorBoard events, plot.png, and the
certificates of the image. Ctrl-C ends the run with a checkpoint; `--resume` continues from the last one.
"""
