-- 0007: a partition that acknowledges nothing: its messages are parked, so that the batches they came in can close.
--
-- A row with scope 'partition' is either on its way there (requesting, without a time: the relay that sent it waits for the broker's
-- answer) or waits for the row that stands for the whole partition.
alter table :"schema".parked add column partition int;
alter table :"schema".parked drop constraint parked_scope_check;
alter table :"schema".parked add constraint parked_scope_check check (scope in ('key', 'topic', 'partition'));

insert into :"schema".denpyo_migration (version, name) values (7, '0007_partition');
