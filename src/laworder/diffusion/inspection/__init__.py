"""What a model is: what it was trained on and how, and what it draws."""
