-- 0000: the schema; runs where it is missing, before all else.
create schema :"schema";
