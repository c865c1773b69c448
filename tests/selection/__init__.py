"""Which tests a change reaches, and which of them have passed since."""
