// Package config reads the configuration: langgraph.json, flags and environment variables. It owns their names, defaults, limits and
// error texts. It does not open databases or start processes, and imports no other package of this module.
//
// Load reads all three, later ones winning: defaults, the env section of langgraph.json, environment variables, flags. It reports every
// mistake at once, each with its place and what to write instead, and warns of keys that mean nothing to this version.
//
// A setting is one row of the table in settings.go. The command line, the environment, --help and docs/configuration.md come from it.
package config
