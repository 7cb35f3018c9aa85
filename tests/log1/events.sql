BEGIN TRANSACTION;
CREATE TABLE events (
    position  INTEGER PRIMARY KEY,
    key       TEXT NOT NULL UNIQUE,
    time      REAL NOT NULL,
    kind      TEXT NOT NULL,
    item      TEXT,
    body      TEXT NOT NULL,
    suggested TEXT,
    refused   TEXT,
    checksum  INTEGER NOT NULL
);
INSERT INTO "events" VALUES(1,'first',1.79500524027056741717e+09,'learn','1','{"id":"1","text":"sort a list","y":["python","lists"]}','[]',NULL,3420059583);
INSERT INTO "events" VALUES(2,'auto:a74410e6085748e4850e721036e9b5d7',1.7950052402706174851e+09,'learn','2','{"id":"2","text":"swim in May","y":["sea"]}','[]',NULL,731618278);
INSERT INTO "events" VALUES(3,'auto:bc48e8f5cc9542698347e4423cbcb9e8',1.79500524027212238304e+09,'learn','3','{"id":"3","text":"grüße an die Küste 🌊","y":["sea"]}','[]',NULL,2108268766);
INSERT INTO "events" VALUES(4,'ls:1:9:2024-05-01T10:00:00Z',1.79500524027218627933e+09,'learn','ls:1:7','{"id":"ls:1:7","text":"salt the soup","y":["soup"]}','[]',NULL,1073431617);
INSERT INTO "events" VALUES(5,'auto:c302a37c8c47436d9f1c7dc1e56aacd8',1.79500524027316331861e+09,'learn','p1','{"id":"p1","text":"boil an egg","y":["soup"]}','["sea"]',NULL,3492476325);
INSERT INTO "events" VALUES(6,'auto:c5d28593885b41e1a33e3c650415fe3e',1.79500524027403831478e+09,'rename',NULL,'{"old":"sea","new":"ocean"}',NULL,NULL,3704231321);
INSERT INTO "events" VALUES(7,'auto:42a2cb79b826454e9c4f7be135d7c7d2',1.79500524027486181265e+09,'learn','2','{"id":"2","text":"swim in May","y":["ocean","may"]}',NULL,NULL,1111166279);
INSERT INTO "events" VALUES(8,'late',1.79500524027563500405e+09,'forget','nobody','{"id":"nobody"}',NULL,'',2244421822);
INSERT INTO "events" VALUES(9,'bad',1.79500524027627801895e+09,'learn','4','{"id":"4","text":"p0ison","y":["x"]}','[]','text must not be p0ison',214591097);
INSERT INTO "events" VALUES(10,'auto:62db1c0b9b6f4ef688bb45a2bd942c49',1.79500524027780795095e+09,'merge',NULL,'{"tags":["python","lists"],"into":"code"}',NULL,NULL,3310723826);
INSERT INTO "events" VALUES(11,'auto:946b23397bf942749ae52f43d34b3dde',1.7950052402785274982e+09,'forget','ls:1:7','{"id":"ls:1:7"}',NULL,NULL,2387088963);
INSERT INTO "events" VALUES(12,'auto:6d1353e1a6bf4fe7bf506b9674a10685',1.79500524027929043774e+09,'learn','5','{"id":"5","text":"read a file","y":["code"]}','["code"]',NULL,192670875);
INSERT INTO "events" VALUES(14,'auto:a3582d1b2a224432a170b13e345edcfb',1.7950052402889313698e+09,'remove',NULL,'{"tag":"may"}',NULL,NULL,1141120691);
INSERT INTO "events" VALUES(15,'auto:b91d91a4353941988c8c32557368aca6',1.79500524029030251505e+09,'learn','7','{"id":"7","text":"write a file","y":["code"]}','["code"]',NULL,1547543774);
CREATE TABLE items (
    id       TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "items" VALUES('1',1);
INSERT INTO "items" VALUES('3',3);
INSERT INTO "items" VALUES('p1',5);
INSERT INTO "items" VALUES('2',7);
INSERT INTO "items" VALUES('5',12);
INSERT INTO "items" VALUES('7',15);
CREATE TABLE pool (
    number INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE,
    body   TEXT NOT NULL
);
INSERT INTO "pool" VALUES(2,'p2','{"text":"mend a tyre"}');
CREATE INDEX events_of_item ON events (item, position) WHERE item IS NOT NULL;
CREATE INDEX events_of_tags ON events (position)
    WHERE kind IN ('rename', 'merge', 'remove');
CREATE INDEX items_by_position ON items (position);
PRAGMA user_version = 1;
COMMIT;
