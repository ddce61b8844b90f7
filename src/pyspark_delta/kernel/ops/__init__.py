"""Operations that move no rows."""
