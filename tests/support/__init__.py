"""What tests share: a clock moved by hand, and real server processes."""
