// Package config gathers what the server is told at its start: langgraph.json, flags and environment variables. It owns their names,
// defaults and limits, and the words of a mistake in them. It opens no database, starts no process and knows no other package here.
//
// Load reads all three, later ones winning: defaults, the env section of langgraph.json, environment variables, flags. It reports every
// mistake at once, each with its place and what to write instead, and warns of keys that mean nothing to this version.
//
// A setting is one row of the table in settings.go. The command line, the environment, --help and docs/configuration.md come from it.
package config
