package main

import "html"

const frame = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>The bank</title>
<link rel="stylesheet" href="/stylesheets/bootstrap.min.css">
<link rel="stylesheet" href="/stylesheets/bootflat.min.css">
<link rel="stylesheet" href="/stylesheets/isucon-bank.css">
</head>
<body>
<div class="container">
<h1 id="topbar"><a href="/"><img src="/images/isucon-bank.png" alt="The bank" width="200" height="55"></a></h1>
`

const frameEnd = `
</div>
</body>
</html>
`

const form = `<form class="form-horizontal" method="post" action="/login">
<div class="form-group"><label for="login">Login</label>
<input id="login" class="form-control" name="login" autocomplete="username" autofocus></div>
<div class="form-group"><label for="password">Password</label>
<input id="password" class="form-control" name="password" type="password" autocomplete="current-password"></div>
<div class="form-group"><button type="submit" class="btn btn-primary btn-lg btn-block">Log in</button></div>
</form>`

// indexPage is the login page, with a notice unless it is empty.
func indexPage(notice string) string {
	if notice != "" {
		notice = `<div id="notice-message" class="alert alert-danger" role="alert">` + html.EscapeString(notice) + "</div>\n"
	}
	return frame + `<div id="be-careful-phising" class="panel panel-danger">
<div class="panel-heading">Beware of phishing</div>
<div class="panel-body">Log in here alone. We never ask for your password by mail or telephone.</div>
</div>
<div class="page-header"><h2>Log in</h2></div>
` + notice + form + frameEnd
}

// customerPage tells a customer time and address of the login before this one.
func customerPage(login, at, address string) string {
	return frame + `<div class="alert alert-success" role="alert">You are logged in.<br>
The last login was at <span id="last-logined-at">` + at + `</span> from the address <span id="last-logined-ip">` +
		html.EscapeString(address) + `</span>.</div>
<div class="panel panel-default">
<div class="panel-heading">Your account</div>
<div class="panel-body"><table class="table"><tbody>
<tr><th>Customer</th><td>` + html.EscapeString(login) + `</td></tr>
<tr><th>Balance</th><td id="zandaka">0</td></tr>
</tbody></table></div>
</div>` + frameEnd
}
