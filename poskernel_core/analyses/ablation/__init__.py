"""What a model loses on data if some heads are ablated."""
