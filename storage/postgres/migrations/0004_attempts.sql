-- Records of streams say which attempt of their run they are the word of, and number those of each: so readers notice that one is missing.
ALTER TABLE stream_records ADD COLUMN attempt bigint NOT NULL DEFAULT 0, ADD COLUMN idx bigint NOT NULL DEFAULT 0;
