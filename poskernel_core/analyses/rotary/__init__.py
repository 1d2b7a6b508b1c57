"""The spectrum of rotary heads: which wavelengths a head uses, and the kernel they make."""
