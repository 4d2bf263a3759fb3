package main

import "testing"

func TestServersAreNamedByWhatTheyTell(t *testing.T) {
	for info, want := range map[string]string{
		"# Server\r\nredis_version:7.0.15\r\nexecutable:/usr/bin/redis-server\r\n":          "Redis 7.0.15",
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n": "Valkey 8.0.1",
		"redis_version:6.3.4\r\nexecutable:/usr/bin/keydb-server\r\n":                       "KeyDB 6.3.4",
		"redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0\r\n":                           "Dragonfly 1.30.0",
		"redis_version:7.4.3\r\ngarnet_version:1.0.84\r\n":                                  "Garnet 1.0.84",
		"redis_version:7.2.4\r\nserver_name:other\r\n":                                      "other 7.2.4",
		"": "Redis of unknown version",
	} {
		if got := serverName(info); got != want {
			t.Errorf("%q: %s, want %s", info, got, want)
		}
	}
}
