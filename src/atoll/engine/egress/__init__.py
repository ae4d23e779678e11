"""What sandboxes may reach: their policies, told to packet filter and gateway before they run.

`stored` is what the record keeps, `effective` what results with the class and the settings (both
pure), `enforcing` makes it so, `logs` reads what was decided.
"""
