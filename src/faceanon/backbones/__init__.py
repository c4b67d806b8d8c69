"""Methods, one a file: `base` says what each has to do, `presets` lists them, `persona` is the one for photographs."""
