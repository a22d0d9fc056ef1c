-- For a sweep by hand: opens the transaction of one step. What is wanted are a few thousand rows by their ids, whatever the
-- statistics say.
begin isolation level read committed;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local jit = off;
set local row_security = off;
