// Package backend opens what a configuration names to keep things in: the data folder or the Postgres database, and what carries live streams,
// memory or Redis. It distinguishes wrong configuration from services that are down.
package backend
