"""Commands that make the weights which the package ships. They need nothing but what the package itself needs."""
