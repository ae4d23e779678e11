"""How a sandbox starts, sleeps, wakes and ends, and what makes it do so."""
