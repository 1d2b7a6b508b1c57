"""What every part stands on: errors, frozen descriptions, axes, files, numbers as text."""
