// Package doctor checks all that a server needs before it can work, and says how to fix what is missing.
package doctor
