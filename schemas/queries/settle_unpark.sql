-- Parked rows that were dispatched: their receipt is in the settlement. $1 bigint[] ids
delete from :"schema".parked where id = any($1::bigint[])
