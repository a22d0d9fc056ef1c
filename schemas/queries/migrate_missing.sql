-- For the script that init --print makes: has migration :version not been applied?
select not exists (select from :"schema".denpyo_migration where version = :version) as missing
