"""What a survey looks at, one file a subject. Everything here only reads; the process it runs in is thrown away."""
