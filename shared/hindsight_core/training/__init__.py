"""Commands that make the weights which the package ships. They need scikit-learn; nothing else imports them."""
