"""Generated documents: tables, the doctor's data, and the evidence behind them."""
