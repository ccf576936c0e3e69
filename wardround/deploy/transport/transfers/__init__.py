"""How questions and answers of any size travel over lines of any speed."""
