// Package gateway serves the HTTP API of DeerFlow's Gateway, for its web UI, channels and scripts: routes in groups, one file each. Forms of requests and
// answers are in package server/deerflow, accounts, files and settings in package deerflow.
package gateway
