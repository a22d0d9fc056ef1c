-- 0000: the list of migrations applied to the schema; runs where it is missing. Its presence marks the schema as denpyo's.
create table :"schema".denpyo_migration (
    version    int primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp(),
    applied_by text not null default current_user
);
