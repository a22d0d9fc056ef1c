-- Opens a transaction. Each of its statements is to see what was committed until then, whatever isolation level the role or the
-- database prescribes: nothing here needs more, and a serialization failure would cost the connection.
begin isolation level read committed
