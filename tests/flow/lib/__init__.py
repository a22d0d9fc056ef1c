"""What flow tests share: servers, relays and waiting."""
