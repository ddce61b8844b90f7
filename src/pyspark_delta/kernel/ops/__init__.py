"""Operations on tables that write no data files."""
