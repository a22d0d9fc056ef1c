-- 0000: the schema and the list of migrations applied to it; runs before every other file and may run again.

create schema if not exists :"schema";

create table if not exists :"schema".denpyo_migration (
    version    int primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp(),
    applied_by text not null default current_user
);
