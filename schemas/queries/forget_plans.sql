-- In a transaction that has just begun, now and then: a prepared statement keeps the plan that suited the tables as they were when it was first
-- used. Nothing but autovacuum would have it planned again, and until that comes by a look planned for a table of ten rows may read millions.
discard plans
