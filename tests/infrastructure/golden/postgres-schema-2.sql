CREATE SCHEMA app;
CREATE TABLE app.alarms (
    id text NOT NULL COLLATE pg_catalog."C",
    next_run_time double precision,
    job_state bytea NOT NULL
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
CREATE TABLE app.answers (
    id text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL,
    status bigint NOT NULL,
    version bigint,
    body bytea NOT NULL,
    at_ms bigint NOT NULL
);
CREATE TABLE app.events (
    "position" bigint NOT NULL,
    originator_id text NOT NULL COLLATE pg_catalog."C",
    originator_version bigint NOT NULL,
    topic text NOT NULL,
    state bytea NOT NULL,
    recorded_at_ms bigint NOT NULL,
    checksum bytea NOT NULL
);
CREATE TABLE app.items (
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    capacity bigint NOT NULL,
    held bigint NOT NULL,
    confirmed bigint NOT NULL
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
CREATE TABLE app.lines (
    id text NOT NULL COLLATE pg_catalog."C",
    item text NOT NULL,
    hold text NOT NULL,
    units bigint NOT NULL,
    due_at_ms bigint
);
CREATE TABLE app.log_head (
    singleton integer NOT NULL,
    "position" bigint NOT NULL,
    checksum bytea NOT NULL,
    projected_position bigint NOT NULL,
    log_id text DEFAULT ''::text NOT NULL,
    tombstone text,
    CONSTRAINT log_head_singleton_check CHECK ((singleton = 1))
)
WITH (fillfactor='10', autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
CREATE TABLE app.objects (
    id text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    alarm_at_ms bigint
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
CREATE TABLE app.owners (
    token text NOT NULL,
    until_ms bigint NOT NULL,
    process text NOT NULL
);
CREATE TABLE app.ownerships (
    id text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL,
    wanted integer NOT NULL
);
CREATE TABLE app.reservation_expiry_schema (
    version integer NOT NULL
);
CREATE TABLE app.reservations (
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    status text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    expired_at_ms bigint,
    expiration_count bigint NOT NULL,
    alarm_at_ms bigint,
    ended_at_ms bigint,
    owner text,
    terms text
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
CREATE TABLE app.servers (
    token text NOT NULL COLLATE pg_catalog."C",
    process text NOT NULL,
    seen_at_ms bigint NOT NULL
);
CREATE TABLE app.snapshots (
    id text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    state bytea NOT NULL
);
CREATE TABLE app.tokens (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    scope text NOT NULL,
    secret_sha256 bytea NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint
);
CREATE TABLE app.writers (
    token text NOT NULL,
    batch bigint NOT NULL,
    since_ms bigint NOT NULL
)
WITH (fillfactor='10', autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
INSERT INTO app.alarms VALUES ('reservation/seat-1', 1800000060, '\x7b2276223a312c227363686564756c65645f74696d65223a313830303030303036303030307d');
INSERT INTO app.alarms VALUES ('reservation/seat-2', 1800000610, '\x7b2276223a312c227363686564756c65645f74696d65223a313830303030303631303030307d');
INSERT INTO app.alarms VALUES ('object/Counter/one', 4102444800, '\x7b2276223a312c227363686564756c65645f74696d65223a343130323434343830303030307d');
INSERT INTO app.alarms VALUES ('reservation/cart-1', 1800000610, '\x7b2276223a312c227363686564756c65645f74696d65223a313830303030303631303030307d');
INSERT INTO app.alarms VALUES ('reservation/cart-2', 1800000610, '\x7b2276223a312c227363686564756c65645f74696d65223a313830303030303631303030307d');
INSERT INTO app.events VALUES (1, 'reservation/seat-1', 1, 'reservation.Held', '\x7b22637265617465645f61745f6d73223a313830303030303030303030302c22657870697265735f61745f6d73223a313830303030303036303030307d', 1800000000000, '\x47751b2a7419ccb518aa06714685094e');
INSERT INTO app.events VALUES (2, 'reservation/seat-1', 2, 'reservation.AlarmScheduled', '\x7b227363686564756c65645f74696d655f6d73223a313830303030303036303030307d', 1800000000000, '\x425f9b1288de1d32237b76dbe4a0a8c1');
INSERT INTO app.events VALUES (3, 'reservation/seat-2', 1, 'reservation.Held', '\x7b22637265617465645f61745f6d73223a313830303030303030303030302c22657870697265735f61745f6d73223a313830303030303036303030307d', 1800000000000, '\x444ef9708ba5cb8dc67b5f5dd4c8ff4f');
INSERT INTO app.events VALUES (4, 'reservation/seat-2', 2, 'reservation.AlarmScheduled', '\x7b227363686564756c65645f74696d655f6d73223a313830303030303036303030307d', 1800000000000, '\xbb88e420abce2da1a30541c39bf31558');
INSERT INTO app.events VALUES (5, 'reservation/seat-2', 3, 'reservation.Held', '\x7b22637265617465645f61745f6d73223a313830303030303031303030302c22657870697265735f61745f6d73223a313830303030303631303030307d', 1800000010000, '\xf4b96b3eb3ce8b566be9e4a5412ffc28');
INSERT INTO app.events VALUES (6, 'reservation/seat-2', 4, 'reservation.AlarmScheduled', '\x7b227363686564756c65645f74696d655f6d73223a313830303030303631303030307d', 1800000010000, '\x70a12518bd2957b1c02e2e2629895c3e');
INSERT INTO app.events VALUES (7, 'reservation/seat-3', 1, 'reservation.Held', '\x7b22637265617465645f61745f6d73223a313830303030303031303030302c22657870697265735f61745f6d73223a313830303030303031353030307d', 1800000010000, '\x9102f768905f9210615d6a75541ae026');
INSERT INTO app.events VALUES (8, 'reservation/seat-3', 2, 'reservation.AlarmScheduled', '\x7b227363686564756c65645f74696d655f6d73223a313830303030303031353030307d', 1800000010000, '\x88c08a8181b5db15ed0a9b7e08e1aa7c');
INSERT INTO app.events VALUES (9, 'reservation/seat-3', 3, 'reservation.Expired', '\x7b22657870697265645f61745f6d73223a313830303030303031353030307d', 1800000010000, '\xe3a788a2d76a2011867cfaa8c5e3f014');
INSERT INTO app.events VALUES (10, 'object/Counter/one', 1, 'object.StorageWritten', '\x7b2270757473223a7b22636f756e74223a317d7d', 1800000010000, '\x6e0cf881ad79d5809ede1ed42eb4b3e9');
INSERT INTO app.events VALUES (11, 'object/Counter/one', 2, 'object.StorageWritten', '\x7b2270757473223a7b22636f756e74223a327d7d', 1800000010000, '\x7c47bbf7f39f202adcb9590cf87a01d0');
INSERT INTO app.events VALUES (12, 'object/Counter/one', 3, 'object.AlarmSet', '\x7b227363686564756c65645f74696d655f6d73223a343130323434343830303030307d', 1800000010000, '\x82651efa859603021828c31e51d48ced');
INSERT INTO app.events VALUES (13, 'item/floor', 1, 'item.CapacitySet', '\x7b226361706163697479223a3530307d', 1800000010000, '\x4168ec751b76f06680c19bda1f2fa12d');
INSERT INTO app.events VALUES (14, 'reservation/cart-1', 1, 'reservation.Held', '\x7b22637265617465645f61745f6d73223a313830303030303031303030302c22657870697265735f61745f6d73223a313830303030303631303030302c227465726d73223a7b22756e74696c5f6d73223a313830303038363431303030302c226c696e6573223a5b5b22666c6f6f72222c325d2c5b22412d3132222c315d5d2c22736563726574223a6e756c6c2c226f776e6572223a22616e6e222c226d65746164617461223a227b5c226f726465725c223a343731317d222c22657874656e73696f6e73223a307d7d', 1800000010000, '\xf0b14a722ff1ccb39591e16b4a8c3c3b');
INSERT INTO app.events VALUES (15, 'reservation/cart-1', 2, 'reservation.AlarmScheduled', '\x7b227363686564756c65645f74696d655f6d73223a313830303030303631303030307d', 1800000010000, '\xe3c1ee624bed5ab062cc37fdc286bedf');
INSERT INTO app.events VALUES (16, 'reservation/cart-2', 1, 'reservation.Held', '\x7b22637265617465645f61745f6d73223a313830303030303031303030302c22657870697265735f61745f6d73223a313830303030303631303030302c227465726d73223a7b22756e74696c5f6d73223a313830303038363431303030302c226c696e6573223a5b5b22666c6f6f72222c335d5d2c22736563726574223a6e756c6c2c226f776e6572223a6e756c6c2c226d65746164617461223a6e756c6c2c22657874656e73696f6e73223a307d7d', 1800000010000, '\x92114d79030d3410a5bfdbb9c43c4ecc');
INSERT INTO app.events VALUES (17, 'reservation/cart-2', 2, 'reservation.AlarmScheduled', '\x7b227363686564756c65645f74696d655f6d73223a313830303030303631303030307d', 1800000010000, '\xc2a6d745349e829e1dcb71c2deff02e0');
INSERT INTO app.items VALUES ('A-12', 0, 1, 1, 0);
INSERT INTO app.items VALUES ('floor', 1, 500, 5, 0);
INSERT INTO app.lines VALUES ('A-12/cart-1', 'A-12', 'cart-1', 1, 1800000610000);
INSERT INTO app.lines VALUES ('floor/cart-1', 'floor', 'cart-1', 2, 1800000610000);
INSERT INTO app.lines VALUES ('floor/cart-2', 'floor', 'cart-2', 3, 1800000610000);
INSERT INTO app.log_head VALUES (1, 17, '\xc2a6d745349e829e1dcb71c2deff02e0', 17, 'b11d4779a4d1420b', NULL);
INSERT INTO app.objects VALUES ('object/Counter/one', 3, 4102444800000);
INSERT INTO app.reservation_expiry_schema VALUES (2);
INSERT INTO app.reservations VALUES ('seat-1', 2, 'held', 1800000000000, 1800000060000, NULL, 0, 1800000060000, NULL, NULL, NULL);
INSERT INTO app.reservations VALUES ('seat-2', 4, 'held', 1800000010000, 1800000610000, NULL, 0, 1800000610000, NULL, NULL, NULL);
INSERT INTO app.reservations VALUES ('seat-3', 3, 'expired', 1800000010000, 1800000015000, 1800000015000, 1, NULL, NULL, NULL, NULL);
INSERT INTO app.reservations VALUES ('cart-1', 2, 'held', 1800000010000, 1800000610000, NULL, 0, 1800000610000, NULL, 'ann', '{"until_ms":1800086410000,"lines":[["floor",2],["A-12",1]],"secret":null,"owner":"ann","metadata":"{\"order\":4711}","extensions":0}');
INSERT INTO app.reservations VALUES ('cart-2', 2, 'held', 1800000010000, 1800000610000, NULL, 0, 1800000610000, NULL, NULL, '{"until_ms":1800086410000,"lines":[["floor",3]],"secret":null,"owner":null,"metadata":null,"extensions":0}');
ALTER TABLE ONLY app.alarms
    ADD CONSTRAINT alarms_pkey PRIMARY KEY (id);
ALTER TABLE ONLY app.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY app.events
    ADD CONSTRAINT events_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY app.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (name);
ALTER TABLE ONLY app.lines
    ADD CONSTRAINT lines_pkey PRIMARY KEY (id);
ALTER TABLE ONLY app.log_head
    ADD CONSTRAINT log_head_pkey PRIMARY KEY (singleton);
ALTER TABLE ONLY app.objects
    ADD CONSTRAINT objects_pkey PRIMARY KEY (id);
ALTER TABLE ONLY app.owners
    ADD CONSTRAINT owners_pkey PRIMARY KEY (token);
ALTER TABLE ONLY app.ownerships
    ADD CONSTRAINT ownerships_pkey PRIMARY KEY (id);
ALTER TABLE ONLY app.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY app.servers
    ADD CONSTRAINT servers_pkey PRIMARY KEY (token);
ALTER TABLE ONLY app.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (id);
ALTER TABLE ONLY app.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);
ALTER TABLE ONLY app.writers
    ADD CONSTRAINT writers_pkey PRIMARY KEY (token);
CREATE INDEX alarms_by_next_run_time ON app.alarms USING btree (next_run_time);
CREATE INDEX answers_by_time ON app.answers USING btree (at_ms);
CREATE UNIQUE INDEX events_by_originator ON app.events USING btree (originator_id, originator_version);
CREATE INDEX lines_by_deadline ON app.lines USING btree (item, due_at_ms);
CREATE INDEX ownerships_by_owner ON app.ownerships USING btree (owner, wanted);
