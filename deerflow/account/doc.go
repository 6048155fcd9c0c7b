// Package account is about the people who sign in to DeerFlow's web UI: registering, signing in, sessions, passwords.
//
// Passwords are hashed as DeerFlow hashes them, and sessions are its tokens, so that users and their open browsers move here unchanged. The
// package knows no HTTP; package server sets cookies and checks CSRF.
package account
