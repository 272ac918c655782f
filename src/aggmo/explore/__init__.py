"""The explorer of `aggmo explore`: pages that answer every slider, and whose only mathematics is `aggmo.theory`."""
