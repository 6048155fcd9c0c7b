// Package backend opens what a configuration names to keep things in: the data folder or the Postgres database, and what carries live streams,
// memory or Redis. It tells configuration that is wrong from services that are away for now.
package backend
