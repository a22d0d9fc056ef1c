-- The ranges that a batch had taken: each of their rows is in the batch's receipt, or parked again. $1 relay, $2 batch
delete from :"schema".parked_range where relay = $1::text and taken_by = $2::bigint
