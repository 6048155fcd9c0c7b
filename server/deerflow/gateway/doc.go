// Package gateway serves the HTTP API of DeerFlow's Gateway, for its web UI, channels and scripts: routes in groups, one file each, with a type for the
// handlers of each group. The types embed what groups share: base, browser, ownership, states, feeds and turns. Forms of requests and answers are in package
// server/deerflow, accounts, files and settings in package deerflow.
package gateway
