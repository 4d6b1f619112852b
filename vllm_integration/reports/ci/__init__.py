"""Results as continuous integration reads them: GitHub's annotations, SARIF and JUnit XML."""
