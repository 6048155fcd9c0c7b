// Package config reads the configuration: langgraph.json, flags and environment variables. It owns
// their names, defaults, limits and error texts. It does not open databases or start processes.
//
// Load reads all sources; later ones win: defaults, the env section of langgraph.json, environment
// variables, flags. It reports every mistake at once, each with its place and a correction, and
// warns of unknown keys.
//
// A setting is one row of the table in settings.go, from which the command line, the environment
// and --help are derived. A test checks that docs/configuration.md has every setting.
package config
