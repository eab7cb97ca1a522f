"""What is timed: the image corpus, decoders, loaders, models, training and inference steps."""
